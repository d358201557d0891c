"""Reads the options of the process from flags and environment variables.

A flag beats its environment variable, which beats the default. Text that cannot be read stops the
start with a message that names the flag or variable, the value, and what is allowed. The one
exception is Karpenter's own rule for its own options (`falls_back`): an unreadable number, truth value
or duration in a variable leaves the default in force; `Settings.warnings` says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from karpenter_core.errors import SettingsError
from karpenter_core.operator.option_shapes import comma_separated, shape_value
from karpenter_core.operator.option_values import OptionText, ProcessOption, read_option
from karpenter_core.operator.options import OPTIONS, flag_name
from karpenter_core.operator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.operator.option_values import Value
    from karpenter_core.provider.contract import SettingSpec

__all__ = ["load_settings", "options_by_plugin", "selected_plugins", "split_files"]


def load_settings(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    plugin_options: Iterable[SettingSpec] = (),
) -> Settings:
    """Read the options from flags and environment.

    Raises:
        SettingsError: an unknown flag, or values that cannot be used; all of them are named.
    """
    specs = tuple(plugin_options)
    core = {option.flag: option for option in OPTIONS}
    extra = _plugin_table(specs, core)
    flags = _read_flags(arguments, core | extra)
    problems: list[str] = []
    warnings: list[str] = []
    values: dict[str, object] = {}
    for flag, option in (core | extra).items():
        given = _option_text(option, flags.get(flag), environment.get(option.env))
        is_shared = len(_defaults(flag, specs)) > 1
        default_text = "" if is_shared else option.default_text
        value: Value | None = None
        try:
            if given is not None:
                value = read_option(option, given, warnings.append, default=default_text)
            if value is not None or not is_shared:
                value = option.default if value is None else value
                values[flag] = shape_value(option, value, given, warnings)
        except SettingsError as error:
            problems.append(str(error))
    problems += _unfit(values)
    if problems:
        raise SettingsError("; ".join(problems))
    return Settings(
        plugins={flag: values[flag] for flag in extra if flag in values},  # pyright: ignore[reportArgumentType] - values of plug-ins are not shaped
        warnings=tuple(warnings),
        **{option.field: values[flag] for flag, option in core.items()},  # pyright: ignore[reportArgumentType] - the table and the fields are compared by a test
    )


def split_files(
    arguments: Sequence[str], *, plugin_options: Iterable[SettingSpec]
) -> tuple[list[str], list[str]]:
    """Split a command line into the options of the process with their values, and the other words."""
    core = {option.flag: option for option in OPTIONS}
    table = core | _plugin_table(tuple(plugin_options), core)
    options: list[str] = []
    words: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "-" or not argument.startswith("-"):
            words.append(argument)
            continue
        options.append(argument)
        name, separator, _ = argument.lstrip("-").partition("=")
        option = table.get(name)
        if option is not None and not separator and not isinstance(option.default, bool) and rest:
            options.append(rest.pop(0))
    return options, words


def options_by_plugin(
    specs: Mapping[str, Sequence[SettingSpec]],
) -> Mapping[str, tuple[ProcessOption, ...]]:
    """Return the options of each plug-in, with its own defaults.

    Raises:
        SettingsError: a plug-in's option clashes with another one.
    """
    core = {option.flag: option for option in OPTIONS}
    _plugin_table((spec for each in specs.values() for spec in each), core)
    return {name: tuple(_plugin_table(each, core).values()) for name, each in specs.items()}


def selected_plugins(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Return the plug-ins to load, read before their own options can be; None = every one."""
    option = next(item for item in OPTIONS if item.flag == "providers")
    text = environment.get(option.env, "")
    for index, argument in enumerate(arguments):
        name, separator, value = argument.lstrip("-").partition("=")
        if name != option.flag:
            continue
        following = arguments[index + 1] if index + 1 < len(arguments) else ""
        text = value if separator else following
    return comma_separated(text) or None


def _plugin_table(
    specs: Iterable[SettingSpec], core: Mapping[str, ProcessOption]
) -> dict[str, ProcessOption]:
    table: dict[str, ProcessOption] = {}
    variables = {option.env: option.flag for option in core.values()}
    for spec in specs:
        flag = flag_name(spec)
        declared = table.get(flag)
        if declared and (declared.env, type(declared.default)) == (spec.env, type(spec.default)):
            # Plug-ins may share an option, each with its own default and meaning.
            table[flag] = replace(declared, falls_back=declared.falls_back and spec.falls_back)
            continue
        if declared or flag in core:
            message = f"option --{flag} is declared twice"
            raise SettingsError(message)
        if spec.env in variables:
            message = (
                f"variable {spec.env} is declared twice, by --{variables[spec.env]} and by --{flag}"
            )
            raise SettingsError(message)
        variables[spec.env] = flag
        table[flag] = ProcessOption(
            flag=flag,
            env=spec.env,
            default=spec.default,
            help=spec.help,
            falls_back=spec.falls_back,
        )
    return table


def _read_flags(arguments: Sequence[str], table: Mapping[str, ProcessOption]) -> dict[str, str]:
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-") or argument in {"-", "--"}:
            message = f'unexpected argument "{argument}"'
            raise SettingsError(message)
        name, separator, value = argument.lstrip("-").partition("=")
        option = table.get(name)
        if option is None:
            message = f"unknown option --{name}"
            raise SettingsError(message)
        if not separator:
            if isinstance(option.default, bool):
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                message = f"option --{name} needs a value"
                raise SettingsError(message)
        given[name] = value
    return given


def _unfit(values: Mapping[str, object]) -> list[str]:
    """Return options that are well-formed and do not fit each other."""
    has_certificate = bool(values.get("metrics-tls-cert-file"))
    if has_certificate != bool(values.get("metrics-tls-key-file")):
        return ["metrics-tls-cert-file and metrics-tls-key-file: one is given without the other"]
    if values.get("metrics-token-auth") and not has_certificate:
        message = (
            "metrics-token-auth: needs metrics-tls-cert-file and metrics-tls-key-file, since a token "
            "that is sent without TLS can be read and used by others"
        )
        return [message]
    return []


def _defaults(flag: str, specs: Iterable[SettingSpec]) -> set[Value]:
    return {spec.default for spec in specs if flag_name(spec) == flag}


def _option_text(
    option: ProcessOption, flag: str | None, variable: str | None
) -> OptionText | None:
    """Return the text that counts: the flag's, else the variable's; None when neither is there."""
    if flag is not None:
        return OptionText(flag, f"--{option.flag}", by_flag=True)
    return None if variable is None else OptionText(variable, option.env, by_flag=False)
