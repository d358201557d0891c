"""The embedded cluster: an API server in memory, with its controllers.

`karpenter demo` and fast tests run against it; it never replaces a real
control plane in a claim about one. Its scope is the verbs that our client and scenarios send.
Objects are plain JSON dicts, shared and never changed in place: a change makes a new dict.
"""
