"""Whatever is asked of the routes, none of them breaks."""

import schemathesis
from hypothesis import HealthCheck, given, settings

EXAMPLES = 2  # of each route
QUICK = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def test_no_request_breaks_the_studio(studio):
    schema = schemathesis.openapi.from_url(f"{studio.url}api/openapi.json")
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) > 10

    for operation in operations:

        @QUICK
        @given(operation.as_strategy())
        def ask(case):
            answer = case.call()
            assert answer.status_code < 500, case.as_curl_command()

        ask()
