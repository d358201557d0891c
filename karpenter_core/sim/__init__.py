"""The embedded cluster: an API server in memory, and the actors that make it behave like one.

It is what `karpenter demo` runs against and the bed of fast tests; it never stands in for a real
control plane in a claim about one. Its scope is the verbs that our client and scenarios send.
Objects are plain JSON dicts, shared and never changed in place: a change makes a new dict.
"""
