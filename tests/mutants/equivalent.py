"""Mutants that no test can kill, with the reason."""

from __future__ import annotations

from typing import Final

from tests.mutants.draw import Mutant

EQUIVALENT: Final[dict[tuple[str, str, str], str]] = {
    (
        "karpenter_core/controllers/observability/node_series.py",
        "NodeSeries._current",
        "if (snapshot is not None or snapshot is not self._rendered):",
    ): "texts of state nodes that did not change are taken over: rendered again they are the same",
    **dict.fromkeys(
        [
            (
                "karpenter_core/scheduling/whatif/first_fit.py",
                "FirstFitPlacement._put",
                f"elif {condition}:",
            )
            for condition in ("(free[line_b] < amount_b)", "(free[line_a] < amount_a)", "False")
        ],
        "what a node lacks is looked at before its places are counted, which would be none",
    ),
    (
        "karpenter_core/scheduling/whatif/solver_run.py",
        "run_plans",
        "return (SolverRun(question, plans.best),) -> pass",
    ): "the same plan twice: the caller takes the first of the best",
    (
        "karpenter_core/scheduling/whatif/what_if_question.py",
        "WhatIfQuestion._collect",
        "return places[self._slots[0]].leaving_pods -> pass",
    ): "the pods that leave one node are sorted by class already",
    **dict.fromkeys(
        [
            (
                "karpenter_core/scheduling/placement/topology_counts.py",
                f"TopologyCounts.{function}",
                f"if (self._counts_on(group, {signature})):",
            )
            for function, signature in (
                ("_certainty", "signature"),
                ("_record_host", "nodes.signature.item(column)"),
            )
        ],
        "a group without a filter counts on every node: looked at first because it is cheaper",
    ),
    (
        "karpenter_core/state/leaving_pods.py",
        "pods_on_leaving_nodes",
        "return () -> pass",
    ): "without leaving nodes there are no pods on them: budgets need not be read for that",
    (
        "karpenter_core/controllers/reconciling/workqueue.py",
        "WorkQueue.add_after",
        "if key in self._ready_keys or (earlier is not None and earlier < due):",
    ): "of two equal times in the heap the second is passed over",
    **dict.fromkeys(
        [
            (
                "karpenter_core/scheduling/compiled/relaxation.py",
                "node_alternatives",
                f"shape, aliases=aliases, {flags}",
            )
            for flags in (
                "respect_preferences=True, softens_taints=False",
                "respect_preferences=False, softens_taints=True",
            )
        ],
        "preferences add steps whose required part, the only one read, is that of others",
    ),
    **dict.fromkeys(
        [("karpenter_core/state/tables.py", "", f"_SHARE: Final = {share}") for share in (31, 33)],
        "when a table is merged decides how much is copied, not what it holds",
    ),
    **dict.fromkeys(
        [
            ("karpenter_core/disruption/static_scale_down.py", "_rank", f"return {changed}")
            for changed in (
                "(_UNLAUNCHED, True, 0.0, False, *tie)",
                "(_UNLAUNCHED, False, 0.0, True, *tie)",
            )
        ],
        "compared among claims without an instance only, which all have it",
    ),
    **dict.fromkeys(
        [
            ("karpenter_core/disruption/simulation.py", "DisruptionSimulation.__init__", change)
            for change in ("self._avoid_unsettled = True", "self._avoid_unsettled = False -> pass")
        ],
        "the first preparation sets it before it is read",
    ),
    (
        "karpenter_core/scheduling/explain/limit_constraints.py",
        "narrow_by_limits",
        "if ((not pool.limited) and pool.has_ample_limits(remaining, 1)):",
    ): "ample limits leave every option as it is: looked at first because it is cheaper",
    (
        "karpenter_core/scheduling/placement/claim_opening.py",
        "ClaimOpener.open_empty",
        "if count < 0:",
    ): "no claims are opened, charged and closed where there is room for none",
    (
        "karpenter_core/scheduling/compiled/pod_classes.py",
        "classify_pods_steps",
        "for number, pod in enumerate(problem.pods, start=2):",
    ): "it only counts the pods between two steps",
    **dict.fromkeys(
        [
            (
                "karpenter_core/disruption/drift_backoff.py",
                "backoff_duration",
                f"window = min(_MIN_DURATION * 2 ** min(failures - 1, {most}), _MAX_DURATION)",
            )
            for most in (9, 11)
        ],
        "the longest window is ten minutes, which four doublings reach: the bound only keeps numbers small",
    ),
    (
        "karpenter_core/controllers/reconciling/wake_signal.py",
        "WakeSignal.wait_for",
        "if (self._is_set and seconds <= 0):",
    ): "a wait for what has happened, or for no time, ends at once in the other branch as well",
    (
        "karpenter_core/scheduling/devices/node_devices.py",
        "NodeDevices.keep_groups",
        "if usage is None or usage.groups.keys() < groups:",
    ): "where no group is given up, the choice is computed again from the same groups",
    (
        "karpenter_core/scheduling/devices/pod_claims.py",
        "ClaimTable._is_released",
        "(consumer.uid in self._moving) for consumer in claim.reserved_for",
    ): "no object of another kind has the UID of a pod",
    **dict.fromkeys(
        [
            (
                "karpenter_core/state/pod_volumes.py",
                f"PodVolumeReader.{function}",
                "storage_class = self._snapshot.storage_classes.get((claim.storage_class))",
            )
            for function in ("_driver", "_alternatives_of_claim")
        ],
        "no StorageClass has an empty name, and none has no name",
    ),
    (
        "karpenter_core/kube/events.py",
        "EventRecorder._post",
        "await self._clock.sleep(min(wait, (10 / _RETRY_SECONDS)))",
    ): "the time between attempts is one second, of which ten are ten either way",
    (
        "karpenter_core/controllers/nodeclaim/drift.py",
        "DriftController._types_of",
        "if cached is None or cached[1] != catalogue.version:",
    ): "the types of a catalogue that did not change are indexed again: the index is the same",
    **dict.fromkeys(
        [
            (
                "karpenter_core/scheduling/commitments.py",
                "discounted_catalogue_steps",
                f'digest = blake2b("\\n".join(changes).encode(), {size}).hexdigest()',
            )
            for size in ("", "digest_size=7", "digest_size=9")
        ],
        "a digest of another size tells the same catalogues apart",
    ),
    (
        "karpenter_core/scheduling/packing/whole_pods.py",
        "_BoundSearch.improve",
        "paid[value_bounds.most + rent <= 0] = 1.0",
    ): "a content of the solution is paid in full, so 1 is neither the highest nor worth a new content",
    (
        "karpenter_core/scheduling/placement/spread_placement.py",
        "fill_levels",
        "if remaining <= _ONE_BY_ONE: -> if False:",
    ): "few pods are shared out one by one because that is faster: a property compares both ways",
    (
        "karpenter_core/state/gang_places.py",
        "places_details",
        "length = 1",
    ): "a text is cut 2,768 characters before what the API server takes: one more or less does not matter",
    (
        "providers/alibabacloud/karpenter_provider_alibabacloud/interruption/reclaims.py",
        "InterruptionShortages.note",
        "self._recorded.put(instance_id, value=False)",
    ): "only whether the instance is there is asked",
    (
        "karpenter_core/controllers/nodeclaim/drift.py",
        "DriftController._is_node_class_edited",
        "self._classes.pop(key, None) -> pass",
    ): "a NodeClass that returns has another UID, which its text tells: only memory is given back",
    (
        "karpenter_core/lifecycle/nodeclaim/nomination.py",
        "pods_compete",
        "return (any(pod.shape is not first.shape for pod in waiting))",
    ): "without a first pod there is none that could differ from it",
    **dict.fromkeys(
        [
            (
                "providers/alibabacloud/karpenter_provider_alibabacloud/price_queries.py",
                "read_spot_history",
                line,
            )
            for line in (
                'if zone and amount is not None and (at, amount) >= latest.get(zone, ("", 0.0)):',
                "if origin is not None and (listed is None or (at, origin) >= listed):",
            )
        ],
        "of two equal prices of one instant either is kept",
    ),
    (
        "karpenter_core/scheduling/commitment_prices.py",
        "PlanPricing._claim_steps",
        "if (price < listed.price):",
    ): "without a cover the price is a list price, and the list has none that is lower",
    **dict.fromkeys(
        [
            (
                "karpenter_core/state/existing_nodes.py",
                f"ExistingNodeBuilder.{function}",
                "if (is_launched(state_node)):",
            )
            for function in ("daemons_on", "_free_resources")
        ],
        "what has no instance is a NodeClaim: only the type checker asks for it",
    ),
    (
        "karpenter_core/scheduling/explain/pool_constraints.py",
        "narrow_by_devices",
        "if ((not explanation.pod_class.shape.resource_claims)):",
    ): "a pod with ResourceClaims is refused before where no devices are known",
    (
        "karpenter_core/scheduling/commitment_prices.py",
        "_Choices.cheapest",
        "break -> pass",
    ): "choices are in the order of their lowest price: none after this one is cheaper",
    (
        "karpenter_core/controllers/reconciling/workqueue.py",
        "WorkQueue._release_due",
        "while self._heap and self._heap[0][0] < now:",
    ): "a key that is due in exactly the time that counts as now is due at the next timer, in that time",
    (
        "karpenter_core/scheduling/compiled/node_signature.py",
        "NodeSignature.has_labels_of_any",
        "if not requirement.complement and len(requirement.values) >= 1",
    ): "a label with one value is decided: it was tried as it is before",
    (
        "karpenter_core/scheduling/isolation.py",
        "_FaultSearch.add_steps",
        "if ((yield from self.attempt((*self._kept_parts, *parts))) is not None):",
    ): "what is kept can be solved: nothing to add only costs another solution",
    (
        "karpenter_core/scheduling/whatif/first_fit.py",
        "FirstFitPlacement._close",
        "return -> pass",
    ): "a node that is closed already is closed once more",
    (
        "providers/aws/karpenter_provider_aws/families/family.py",
        "image_parameters",
        "case AmiFamily.WINDOWS2019:",
    ): "the families of Windows are handled before, and what no case names returns nothing as well",
    (
        "providers/azure/karpenter_provider_azure/node_class/local_dns.py",
        "LocalDnsResolver._static_obstacle",
        "if (numbers is None or numbers < since):",
    ): "settings refuse a version that cannot be read: only the type checker asks for it",
    (
        "karpenter_core/disruption/method.py",
        "DisruptionPass.totals",
        "graceful_candidates = self.candidates(DisruptionClass.EVENTUAL).candidates",
    ): "candidates only spare the price and the cost of their nodes, which are computed alike",
    (
        "providers/alibabacloud/karpenter_provider_alibabacloud/instance_tags.py",
        "_long_uid",
        'return "" -> pass',
    ): "nothing is as little a UID as an empty text is",
    (
        "providers/kwok/karpenter_provider_kwok/active_faults.py",
        "ActiveFaults.disturb",
        "return CallFault() -> pass",
    ): "without active faults none is found: the look at their table is spared",
    (
        "karpenter_core/disruption/multi_node.py",
        "_MoveSearch.repack_steps",
        "for start in range(0, (len(ordered) + 1), MAX_REPACKED // 2):",
    ): "fewer than two candidates end the search",
    (
        "karpenter_core/disruption/plan.py",
        "_acceptances",
        "if inputs is not None: -> if False:",
    ): "verdicts of the last pass are computed again from the same inputs: they are the same",
    (
        "karpenter_core/scheduling/packing/covering.py",
        "safe_bound",
        "over = free & (dual_values >= costs + 1e-12 * max(float(costs.max(initial=0.0)), 1e-12))",
    ): "at exactly the tolerance the bound is lower by 1e-12 of it, less than is taken off for rounding",
    **dict.fromkeys(
        [
            (
                "karpenter_core/kube/events.py",
                "",
                f"_NAME_LENGTH: Final = {length}  # leaves room for the suffix within 253",
            )
            for length in (199, 201)
        ],
        "the suffix has room either way: one character more or less of a name does not matter",
    ),
    **dict.fromkeys(
        [
            (
                "providers/kwok/karpenter_provider_kwok/active_faults.py",
                f"ActiveFaults.{function}",
                "if not self._any_active(): -> if False:",
            )
            for function in ("disturb", "is_node_failing")
        ],
        "without active faults none is found: asked first because it takes no lock",
    ),
    **dict.fromkeys(
        [
            (
                "karpenter_core/scheduling/packing/merging.py",
                "_PatternMerger.with_itself",
                f"while remaining.nodes {condition}:",
            )
            for condition in (">= 1", "> 0")
        ],
        "one node is not put on another one: the loop ends with it as well",
    ),
    **dict.fromkeys(
        [
            (
                "karpenter_core/state/unavailable_offerings.py",
                "without_unavailable",
                f'digest = blake2b("\\n".join(sorted(hidden)).encode(), {size}).hexdigest()',
            )
            for size in ("", "digest_size=7", "digest_size=9")
        ],
        "a digest of another size tells the same offerings apart",
    ),
    (
        "karpenter_core/scheduling/whatif/first_fit.py",
        "FirstFitPlacement.place",
        "self._least = tuple((line, least.item(line)) for line in least.nonzero()[0].tolist()) -> pass",
    ): "nodes with too little for any class are tried, and take no pod",
    (
        "karpenter_core/lifecycle/node/eviction.py",
        "eviction_advice",
        "if (needs_force(pod, deadline, now)):",
    ): "without a deadline nothing is forced: only the type checker asks for it again",
    (
        "karpenter_core/scheduling/portfolio/purchase_mix.py",
        "_new_demand",
        "if (_is_reserved(compiled, signature)):",
    ): "without reservations no claim holds one: asked first because it is cheaper",
    (
        "karpenter_core/scheduling/placement/claim_opening.py",
        "ClaimOpener._within_limits",
        "if ((not pool.limited) and pool.has_ample_limits(remaining, 1)):",
    ): "within ample limits every type is left: asked first because it is cheaper",
    (
        "karpenter_core/scheduling/placement/open_nodes.py",
        "OpenNodes._grow",
        "size = max(needed, 1 * self._signature.shape[0])",
    ): "arrays that grow by as much as is needed hold the same",
    (
        "karpenter_core/state/class_resources.py",
        "class_resources",
        "return found -> pass",
    ): "without DeviceClasses there is nothing to take away: the look at all types is spared",
    (
        "karpenter_core/disruption/return_to_preferred.py",
        "_remaining_disruptions",
        "if rule is None or budget is None: -> if False:",
    ): "accepted nodes have a rule, and every pool has a budget: only the type checker asks",
    (
        "karpenter_core/disruption/simulation.py",
        "DisruptionSimulation.need_several_nodes",
        "return False",
    ): "moves that are known to be impossible are evaluated, and are impossible",
    **dict.fromkeys(
        [
            (
                "karpenter_core/scheduling/packing/robust.py",
                "nth_cheapest",
                line,
            )
            for line in (
                "if rank == 0:",
                "if rank == 1: -> if False:",
            )
        ],
        "the cheapest is found by counting as well: looked up because it is faster",
    ),
    **dict.fromkeys(
        [
            (
                "karpenter_core/scheduling/packing/robust.py",
                "nth_cheapest",
                line,
            )
            for line in (
                "few = np.uint16 if len(order) < 0 << 16 else np.uint32  # narrow ones are faster",
                "few = np.uint16 if len(order) < 1 << 15 else np.uint32  # narrow ones are faster",
                "reached = np.cumsum(ordered, axis=1, )",
            )
        ],
        "wider numbers count alike",
    ),
    (
        "karpenter_core/scheduling/packing/robust.py",
        "nth_cheapest",
        "order = np.argsort(prices, )",
    ): "rows of equal price are interchangeable: only prices are returned",
    (
        "karpenter_core/scheduling/whatif/open_fitting_nodes.py",
        "OpenFittingNodes.fitting_slots",
        "elif self._step - slot_list.step > _MANY_STEPS:",
    ): "a list that is shortened a step later has nodes that are tried in vain",
    (
        "karpenter_core/scheduling/whatif/overlay.py",
        "ClusterOverlay.expect_to_keep",
        "if (table is removed):",
    ): "full nodes that stay in the lists are tried in vain",
    (
        "providers/aws/karpenter_provider_aws/zonal_shift.py",
        "ZonalShiftReader.zones",
        "return NO_SHIFTS -> pass",
    ): "without shifts no zone is active: the look at the clock is spared",
    (
        "providers/azure/karpenter_provider_azure/settings.py",
        "_AzureReader.cloud",
        'return named_environment("") -> pass',
    ): "after a complaint no settings are used: only the type checker asks for a cloud",
}
"""By module, function and the changed lines of the mutant, stripped and joined by spaces.

A change that leaves nothing but `pass` or `if False:` is named with the lines before it: `old -> pass`.
"""


def reason_for(mutant: Mutant, source: str) -> str:
    """Return why a mutant changes no behaviour, or nothing."""
    added = fragment(mutant, source)
    if added in {"pass", "if False:"}:
        added = f"{_lines(mutant, source, '-')} -> {added}"
    return EQUIVALENT.get((mutant.path, mutant.function, added), "")


def fragment(mutant: Mutant, source: str) -> str:
    """Return the lines that a mutant adds, as one; they name it while lines move."""
    return _lines(mutant, source, "+")


def _lines(mutant: Mutant, source: str, sign: str) -> str:
    lines = [line[1:].strip() for line in mutant.diff(source).splitlines() if line[0] == sign]
    return " ".join(line for line in lines if line)
