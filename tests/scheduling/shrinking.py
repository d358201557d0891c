"""Make a problem smaller as long as it still shows the mistake."""

from __future__ import annotations

from dataclasses import replace

import msgspec

_SHAPE_PARTS = (
    "topology_spread",
    "pod_affinity",
    "pod_anti_affinity",
    "preferred_pod_affinity",
    "preferred_pod_anti_affinity",
    "required_node_terms",
    "preferred_node_terms",
    "tolerations",
    "host_ports",
)


def shrunk(problem, shows, *, attempts=600):
    """Drop pods, nodes, pools, types, daemons and constraints while `shows(problem)` holds."""
    left = attempts
    smaller = True
    while smaller and left > 0:
        smaller = False
        for candidate_steps in (
            _fewer_pods,
            _fewer_nodes,
            _fewer_pools,
            _fewer_types,
            _fewer_daemons,
            _fewer_constraints,
        ):
            again = True
            while again and left > 0:
                again = False
                for candidate in candidate_steps(problem):
                    left -= 1
                    if shows(candidate):
                        problem, again, smaller = candidate, True, True
                        break
                    if left <= 0:
                        break
    return problem


def _parts(items):
    """Yield the tuple without half of it, a quarter, and so on down to one."""
    size = len(items) // 2 or len(items)
    while size:
        for start in range(0, len(items), size):
            yield (*items[:start], *items[start + size :])
        size = size // 2


def _fewer_pods(problem):
    for pods in _parts(problem.pods):
        yield replace(problem, pods=pods)


def _fewer_nodes(problem):
    for nodes in _parts(problem.nodes):
        yield replace(problem, nodes=nodes)
    for number, node in enumerate(problem.nodes):
        for pods in _parts(node.pods):
            yield replace(
                problem,
                nodes=(
                    *problem.nodes[:number],
                    replace(node, pods=pods),
                    *problem.nodes[number + 1 :],
                ),
            )


def _fewer_pools(problem):
    for pools in _parts(problem.pools):
        yield replace(problem, pools=pools)


def _fewer_types(problem):
    for name, catalogue in problem.catalogues.items():
        for types in _parts(catalogue.instance_types):
            smaller = replace(catalogue, instance_types=types)
            yield replace(problem, catalogues={**problem.catalogues, name: smaller})


def _fewer_daemons(problem):
    for daemons in _parts(problem.daemons):
        yield replace(problem, daemons=daemons)


def _fewer_constraints(problem):
    shapes = {id(pod.shape): pod.shape for pod in problem.pods}
    shapes |= {id(p.shape): p.shape for node in problem.nodes for p in node.pods}
    for shape in shapes.values():
        for part in _SHAPE_PARTS:
            for values in _parts(getattr(shape, part)):
                yield _with_shape(problem, shape, msgspec.structs.replace(shape, **{part: values}))
        if shape.node_selector:
            yield _with_shape(problem, shape, msgspec.structs.replace(shape, node_selector={}))


def _with_shape(problem, before, after):
    def changed(pods):
        return tuple(
            msgspec.structs.replace(pod, shape=after) if pod.shape is before else pod
            for pod in pods
        )

    return replace(
        problem,
        pods=changed(problem.pods),
        nodes=tuple(replace(node, pods=changed(node.pods)) for node in problem.nodes),
    )
