"""What all tests share: how Hypothesis searches, and that gRPC says no more than errors.

`gate` (the default) takes the same examples every time, so that a red build is about the change.
`soak` takes new ones and many more: `make soak`. Neither has a deadline: no test here is timed.
A failure prints `@reproduce_failure(...)`, to be put above the test while it is mended.
"""

import os

import hypothesis

from hourwheel import grpc_lines

grpc_lines.keep_errors_only()

hypothesis.settings.register_profile(
    "gate", deadline=None, derandomize=True, print_blob=True, max_examples=60, database=None
)
hypothesis.settings.register_profile(
    "soak", deadline=None, print_blob=True, max_examples=3_000, database=None
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))
