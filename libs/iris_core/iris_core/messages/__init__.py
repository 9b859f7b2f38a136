"""The messages between services, one module per pair of speakers. Types only.

Facts end in a past participle, requests are imperative. Positions are fixed (array_like): new
fields go last, with a default, and no meaning changes under an old name. Times are ``*_ms``,
stamped by the first sender. A task is ``(job, index)`` here: ``job`` is the job's number, assigned
    at admission and never reused.
Source: docs/ARCHITECTURE.md#storage, docs/ARCHITECTURE.md#the-path-of-one-job;
    docs/design/semantics.md#sessions.
"""
