"""Write a small problem and its plan as text, for debugging."""

from __future__ import annotations

from tests.support.problem_pools import RESERVATION


def problem_text(problem):
    """Write down all that a problem says, leaving out what is empty."""
    lines = []
    for pool in problem.pools:
        spec = pool.spec.template.spec
        requirements = [
            _expression(r) + (f" minValues {r.min_values}" if r.min_values else "")
            for r in spec.requirements
        ]
        lines += _entry(
            f"pool {pool.name}",
            weight=pool.spec.weight,
            labels=dict(pool.spec.template.metadata.labels),
            requires=requirements,
            taints=[f"{t.key}={t.value}:{t.effect}" for t in spec.taints],
            limits={name: str(quantity) for name, quantity in pool.spec.limits.items()},
            usage=problem.pool_usage.get(pool.name),
        )
        for item in problem.catalogues[pool.name].instance_types:
            known = ("kubernetes.io/arch", "example.com/family", "example.com/cores")
            labels = [item.requirements.single_value(key) for key in known]
            sold = [_offering(offering) for offering in item.offerings]
            lines.append(f"    {item.name} {labels} {dict(item.capacity)} sold {sold}")
    for node in problem.nodes:
        lines += _entry(
            f"node {node.name}{' (closed)' if node.closed else ''}",
            pool=node.pool,
            labels=dict(node.labels),
            requires=None if node.requirements is None else str(node.requirements),
            taints=[f"{t.key}={t.value}:{t.effect}" for t in node.taints],
            available=dict(node.available),
            attached={k: sorted(v) for k, v in node.volumes.items()},
            attaches=dict(node.volume_limits),
        )
        lines += _pods(problem, node.pods, indent="    bound ")
    for daemon in problem.daemons:
        lines.append(f"daemon {daemon.name}: {_shape(daemon.shape)}")
    lines += _pods(problem, problem.pods, indent="pods ")
    return "\n".join(lines)


def plan_text(plan):
    """Write down where pods went, and why others did not."""
    lines = []
    for number, claim in enumerate(plan.claims):
        requirements = [str(requirement) for requirement in claim.requirements]
        lines.append(
            f"claim {number} of {claim.pool}: {[pod.name for pod in claim.pods]}, "
            f"{claim.cheapest.instance_type} in {claim.cheapest.zone} "
            f"{claim.cheapest.capacity_type} for {claim.cheapest.price_per_hour}"
        )
        lines += [f"    requires {requirements}", f"    labels {dict(claim.labels)}"]
    lines += [f"node {name}: {[p.name for p in pods]}" for name, pods in plan.existing.items()]
    lines += [f"left {uid}: {reason.message}" for uid, reason in plan.unschedulable.items()]
    lines.append(f"sequence {' '.join(plan.sequence)}")
    return "\n".join(lines)


def _entry(title, **parts):
    texts = [f"{name} {value}" for name, value in parts.items() if value]
    return [f"{title}: {'; '.join(texts)}"]


def _pods(problem, pods, *, indent):
    by_shape = {}
    for pod in pods:
        by_shape.setdefault(id(pod.shape), []).append(pod)
    for members in by_shape.values():
        names = " ".join(
            pod.name + ("(terminating)" if pod.deletion_timestamp else "") for pod in members
        )
        yield f"{indent}{names}: {_shape(members[0].shape)}"
        volumes = problem.volumes.get(members[0].uid)
        if volumes is not None:
            alternatives = [str(alternative) for alternative in volumes.alternatives]
            attached = {k: sorted(v) for k, v in volumes.attached.items()}
            yield f"        volumes {alternatives}, of the first {attached}"


def _shape(shape):
    parts = [f"ns {shape.namespace}", f"labels {dict(shape.labels)}", f"{dict(shape.requests)}"]
    if shape.node_selector:
        parts.append(f"selects {dict(shape.node_selector)}")
    parts += [f"term {_expressions(term)}" for term in shape.required_node_terms]
    parts += [
        f"wish {wish.weight} {_expressions(wish.term)}" for wish in shape.preferred_node_terms
    ]
    parts += [f"tolerates {t.key} {t.operator} {t.value}" for t in shape.tolerations]
    parts += [f"port {port.protocol} {port.ip}:{port.port}" for port in shape.host_ports]
    parts += [_spread(spread) for spread in shape.topology_spread]
    parts += [f"affinity {_term(term)}" for term in shape.pod_affinity]
    parts += [f"anti-affinity {_term(term)}" for term in shape.pod_anti_affinity]
    for name in ("preferred_pod_affinity", "preferred_pod_anti_affinity"):
        parts += [f"{name} {wish.weight} {_term(wish.term)}" for wish in getattr(shape, name)]
    return "; ".join(parts)


def _spread(spread):
    hard = "" if spread.when_unsatisfiable == "DoNotSchedule" else "soft "
    text = f"{hard}spread {spread.topology_key} maxSkew {spread.max_skew} {_selector(spread)}"
    if spread.min_domains is not None:
        text += f" minDomains {spread.min_domains}"
    if spread.node_affinity_policy != "Honor":
        text += f" nodeAffinityPolicy {spread.node_affinity_policy}"
    if spread.node_taints_policy != "Ignore":
        text += f" nodeTaintsPolicy {spread.node_taints_policy}"
    if spread.match_label_keys:
        text += f" matchLabelKeys {spread.match_label_keys}"
    return text


def _term(term):
    text = f"{term.topology_key} {_selector(term)}"
    if term.namespaces:
        text += f" namespaces {term.namespaces}"
    if term.namespace_selector is not None:
        text += f" of namespaces {_labels(term.namespace_selector)}"
    return text


def _selector(of):
    return "nobody" if of.selector is None else _labels(of.selector)


def _labels(selector):
    parts = [f"{key}={value}" for key, value in selector.match_labels.items()]
    parts += [_expression(expression) for expression in selector.match_expressions]
    return f"{{{', '.join(parts)}}}"


def _expressions(term):
    return [_expression(expression) for expression in term.match_expressions]


def _expression(expression):
    return " ".join((expression.key, expression.operator, *expression.values))


def _offering(offering):
    text = f"{offering.zone}/{offering.capacity_type} {offering.price.amount}"
    if offering.reservation_capacity:
        named = offering.requirements.single_value(RESERVATION)
        text += f" ({offering.reservation_capacity} of {named})"
    if offering.capacity_override:
        text += f" {dict(offering.capacity_override)}"
    return text if offering.available else f"{text} sold out"
