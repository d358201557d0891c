"""Builds dashboards out of rows of panels, with Grafana's own library for their JSON.

In an expression `$S` stands for the selector of the cluster and `$P` for that of cluster and NodePool.
Every panel reads the data source, cluster and NodePool that are chosen on the dashboard.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonObject

__all__ = ["DashboardPage", "Panel", "Query", "Row", "Variable", "dashboard_document"]

CLUSTER: Final = 'cluster=~"$cluster"'
SELECTORS: Final = {"$P": f'{CLUSTER},nodepool=~"$nodepool"', "$S": CLUSTER}
DATA_SOURCE: Final = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG: Final = "karpenter"
GRID_WIDTH: Final = 24
STAT_HEIGHT: Final = 4
PANEL_HEIGHT: Final = 8

Kind: TypeAlias = Literal["lines", "stacked", "stat", "table"]
PanelBuilder: TypeAlias = "timeseries.Panel | stat.Panel | table.Panel"


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and the legend of its series, such as `{{nodepool}}`."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel; `unit` is one of Grafana's units: short, s, bytes, percentunit and others."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: Kind = "lines"
    width: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels below a common heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A choice of label values that a dashboard has besides the usual ones."""

    name: str
    label: str
    values: str
    """The query for its values: `label_values(metric, label)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardPage:
    """One dashboard; `name` is the name of its file."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
    has_pools: bool = True


def dashboard_document(page: DashboardPage) -> JsonObject:
    """Return a dashboard as the JSON that Grafana imports."""
    builder = (
        builders.Dashboard(page.title)
        .uid(f"karpenter-{page.name}")
        .description(page.description)
        .tags([TAG])
        .time("now-6h", "now")
        .timezone("browser")
        .refresh("1m")
        .readonly()
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .link(
            builders.DashboardLink("Karpenter")
            .type(dashboard.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(as_dropdown=True)
            .include_vars(include_vars=True)
            .keep_time(keep_time=True)
        )
        .with_variable(
            builders.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
    )
    pools = Variable(
        name="nodepool", label="NodePool", values=f"label_values(karpenter_nodepools_usage{{{CLUSTER}}}, nodepool)",
    )  # fmt: skip
    clusters = Variable(
        name="cluster", label="Cluster", values="label_values(karpenter_build_info, cluster)"
    )
    for variable in (clusters, *((pools,) if page.has_pools else ()), *page.variables):
        builder.with_variable(_variable(variable))
    number = 1
    for row in page.rows:
        builder.with_row(builders.Row(row.title).id(number))
        number += 1
        for panel in row.panels:
            builder.with_panel(_panel(panel).id(number))
            number += 1
    return cast("JsonObject", json.loads(JSONEncoder(sort_keys=True).encode(builder.build())))


def _variable(variable: Variable) -> builders.QueryVariable:
    return (
        builders.QueryVariable(variable.name)
        .label(variable.label)
        .datasource(DATA_SOURCE)
        .query({"query": variable.values, "refId": variable.name})
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".*")  # matches series without the label, too
        .current(dashboard.VariableOption(selected=True, text="All", value="$__all"))
    )


def _panel(panel: Panel) -> PanelBuilder:
    builder = _KINDS[panel.kind]()
    builder.title(panel.title).description(panel.description).unit(panel.unit)
    builder.datasource(DATA_SOURCE).span(panel.width).min(0)
    builder.height(STAT_HEIGHT if panel.kind == "stat" else PANEL_HEIGHT)
    for number, query in enumerate(panel.queries):
        target = (
            prometheus.Dataquery()
            .expr(_expression(query.expression))
            .legend_format(query.legend)
            .ref_id(chr(ord("A") + number))
        )
        if panel.kind in {"stat", "table"}:
            target.instant()
        else:
            target.range()
        if panel.kind == "table":
            target.format(PromQueryFormat.TABLE)
        builder.with_target(target)
    return builder


def _expression(text: str) -> str:
    for name, selector in SELECTORS.items():
        text = text.replace(name, selector)
    return text


def _lines() -> timeseries.Panel:
    return (
        timeseries.Panel()
        .fill_opacity(10)
        .show_points(common.VisibilityMode.NEVER)
        .tooltip(
            common_builders.VizTooltipOptions()
            .mode(common.TooltipDisplayMode.MULTI)
            .sort(common.SortOrder.DESCENDING)
        )
        .legend(
            common_builders.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.TABLE)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
            .calcs(["lastNotNull", "max"])
        )
    )


def _stacked() -> timeseries.Panel:
    stacking = common_builders.StackingConfig().mode(common.StackingMode.NORMAL)
    return _lines().fill_opacity(40).stacking(stacking)


def _stat() -> stat.Panel:
    reduce = common_builders.ReduceDataOptions().calcs(["lastNotNull"])
    return (
        stat.Panel()
        .reduce_options(reduce)
        .color_mode(common.BigValueColorMode.NONE)
        .graph_mode(common.BigValueGraphMode.NONE)
    )


def _table() -> table.Panel:
    hidden = [dashboard.DynamicConfigValue(id_val="custom.hidden", value=True)]
    return table.Panel().override_by_name("Time", hidden)


_KINDS: Final = {"lines": _lines, "stacked": _stacked, "stat": _stat, "table": _table}
