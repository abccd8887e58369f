import pytest

pytest.register_assert_rewrite("tests.operator_sandbox.changes", "tests.operator_sandbox.cluster", "tests.operator_sandbox.leaving")
