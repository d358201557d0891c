"""The embedded cluster: an API server in memory, with its controllers.

`karpenter demo` and fast tests run against it; statements about a real control plane are tested on
a real one. It implements the verbs that our client and scenarios send.
Objects are plain JSON dicts, shared and never changed in place: a change makes a new dict.
"""
