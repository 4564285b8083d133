"""What holds for all tests."""

import hypothesis

# no test asserts a time: a busy machine is no counterexample
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
