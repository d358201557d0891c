"""Makes a cluster smaller as long as it still shows a difference."""

from __future__ import annotations

import copy

_KEPT = frozenset({
    "allocatable", "annotations", "apiVersion", "architecture", "capacity", "csi", "effect",
    "finalizers", "key", "kind", "labelSelector", "local", "matchLabelKeys",
    "matchLabelExpressions", "matchExpressions", "maxSkew", "metadata", "name", "nodeAffinity", "nodeClassRef",
    "nodePools", "nodeSelectorTerms", "offerings", "operator", "preference", "podAffinityTerm",
    "required", "requiredDuringSchedulingIgnoredDuringExecution", "resources", "spec", "status",
    "storageClassName", "template", "terms", "topologyKey", "uid", "values", "weight",
    "whenUnsatisfiable",
})  # fmt: skip
"""Fields without which a manifest is none, or means something else."""


def shrunk(cluster, types, shows, *, attempts=1500):
    """Drop objects, entries and fields while `shows(cluster, types)` holds."""
    document = {"cluster": cluster, "types": types}
    left = attempts
    smaller = True
    while smaller and left > 0:
        smaller = False
        for path in _places(document):
            if left <= 0 or not _is_there(document, path):
                continue
            left -= 1
            candidate = _without(document, path)
            if shows(candidate["cluster"], candidate["types"]):
                document, smaller = candidate, True
    return document["cluster"], document["types"]


def _places(document):
    """Return the paths of all that may go: what holds most first, the last of a list first."""
    results = []

    def walk(value, path):
        if isinstance(value, dict):
            for name, inner in value.items():
                if name not in _KEPT and len(path) > 0:
                    results.append((*path, name))
                walk(inner, (*path, name))
        elif isinstance(value, list):
            for index in range(len(value) - 1, -1, -1):
                if len(value) > 1 or path[-1] not in _KEPT:
                    results.append((*path, index))
                walk(value[index], (*path, index))

    walk(document, ())
    return sorted(results, key=len)


def _is_there(document, path):
    value = document
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _without(document, path):
    candidate = copy.deepcopy(document)
    value = candidate
    for step in path[:-1]:
        value = value[step]
    del value[path[-1]]
    return candidate
