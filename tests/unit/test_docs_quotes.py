"""The pages quote only what the product can show: messages, conditions, reasons and phases exist in its sources."""

import ast
from pathlib import Path

import doc_quotes
import pytest
from doc_quotes import Quote, can_say, is_sample_of
from product_texts import PRODUCT, ROOT, SANDBOX, Sources, sources

from dracpu_api.conditions import AgentReason, ConfigCondition, ConfigReason, NodeCondition, NodeReason

PAGES = doc_quotes.pages()
product = sources(*PRODUCT)
product_and_sandbox = sources(*PRODUCT, SANDBOX)

# messages of others that the pages quote -> who shows them
FOREIGN_MESSAGES = {
    "cannot allocate all claims": "kube-scheduler",
    "timed out trying to allocate devices": "kube-scheduler",
    "hostPath type check failed": "kubelet",
    "DRA driver dra.cpu is not registered": "kubelet",
    'required plugin "dra-cpu" not present': "containerd",
    "failed post-install": "helm",
    "has no deployed releases": "helm",
    "invalid ownership metadata": "helm",
    "Error: 1 error occurred:": "helm",
    "* job dracpu-uninstall-check failed: BackoffLimitExceeded": "helm",
    "the agent of node worker-1 cannot write a ResourceSlice of node worker-2": "API server, by a policy of the chart",
    'strict decoding error: unknown field "spec.reservedCpus"': "API server",
}
# names of others that the pages quote -> what they are
FOREIGN_NAMES = {
    "CrashLoopBackOff": "why a container waits, by the kubelet",
    "ContainerCreating": "a container's state, by the kubelet",
    "DeadlineExceeded": "a Job's condition, by its controller",
    "FailedPrepareDynamicResources": "an Event's reason, by the kubelet",
    "OOMKilled": "why a container has ended, by the kubelet",
    "PodResizeInProgress": "a condition of pods, by the kubelet",
    "ImagePullBackOff": "why a container waits, by the kubelet",
    "Running": "a pod's status, by kubectl",
    "Static": "a policy of the kubelet's memory manager",
    "Terminating": "a pod's status, by kubectl",
    "UnexpectedAdmissionError": "why the kubelet refuses a pod",
    "Unschedulable": "why a pod is not on a node, by kube-scheduler",
}

REASONS = {*NodeReason, *ConfigReason, *AgentReason}
# reasons that nobody needs to look up
ALL_IS_WELL = {
    AgentReason.READY,
    ConfigReason.COMPLETE,
    ConfigReason.ENOUGH_NODES,
    ConfigReason.NO_CONFLICT,
    ConfigReason.NO_FAILURES,
    ConfigReason.VALID,
    NodeReason.APPLIED,
    NodeReason.CONNECTED,
    NodeReason.HEALTHY,
    NodeReason.PUBLISHED,
    NodeReason.REGISTERED,
}

HINT = (
    "is not in the code: copy it from the source, with `...` for what varies. When another program shows it, "
    "add it to FOREIGN_MESSAGES or FOREIGN_NAMES in this test"
)


def code_of(page: Path) -> Sources:
    return product_and_sandbox if page.parent.name == "dev" or page.name == "sandbox.md" else product


def explain(wrong: list[Quote], hint: str = HINT) -> str:
    return "\n".join(f"{quote}\n    {hint}" for quote in wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_quoted_messages_are_in_the_code(page: Path) -> None:
    texts = code_of(page).texts | FOREIGN_MESSAGES.keys()
    quotes = doc_quotes.messages(page)
    wrong = [quote for quote in quotes if not any(can_say(text, quote.text) for text in texts)]
    assert not wrong, explain(wrong)


def test_messages_of_pods_are_raised_as_errors_that_pods_show() -> None:
    texts = product.texts_that_pods_show
    quotes = [quote for page in PAGES for quote in doc_quotes.messages(page) if quote.column == "the message says"]
    assert quotes
    wrong = [quote for quote in quotes if not any(can_say(text, quote.text) for text in texts)]
    assert not wrong, explain(wrong, "is shown by no pod: no ClaimError and no PlacementError is raised with it")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_quoted_names_are_in_the_code(page: Path) -> None:
    code = code_of(page)
    known = code.names | FOREIGN_NAMES.keys() | (code.classes if code is product_and_sandbox else set())
    wrong = [quote for quote in doc_quotes.names(page) if quote.text not in known]
    assert not wrong, explain(wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sample_output_is_made_from_messages_of_the_code(page: Path) -> None:
    wrong = [
        quote
        for quote in doc_quotes.sample_lines(page)
        if quote.text not in FOREIGN_MESSAGES and not is_sample_of(code_of(page).texts, quote.text)
    ]
    assert not wrong, explain(wrong)


def test_tables_of_conditions_have_conditions_and_their_reasons() -> None:
    names = [quote for page in PAGES for quote in doc_quotes.names(page)]
    conditions = [quote for quote in names if quote.column == "condition"]
    assert {quote.text for quote in conditions} == {*NodeCondition, *ConfigCondition}
    reasons = {quote.text for quote in names if quote.column == "reason"}
    assert reasons <= REASONS


def test_every_reason_that_may_need_action_is_explained() -> None:
    page = ROOT / "docs" / "user" / "troubleshoot.md"
    explained = {quote.text for quote in doc_quotes.names(page) if quote.column == "reason"}
    assert explained == REASONS - ALL_IS_WELL


def test_every_foreign_message_and_name_is_quoted() -> None:
    quoted = {quote.text for page in PAGES for quote in [*doc_quotes.messages(page), *doc_quotes.sample_lines(page)]}
    assert FOREIGN_MESSAGES.keys() <= quoted
    assert FOREIGN_NAMES.keys() <= {quote.text for page in PAGES for quote in doc_quotes.names(page)}


SOURCE = '''
"""A docstring is never shown."""

class LostError(ClaimError):
    pass

def prepare(node):
    if node.lost:
        raise LostError(f"node {node} is lost: the kubelet tries again")
    log.info("claim prepared")

def push(node):
    raise PushError(f"node {node} is not there")
'''
SMALL = Sources((ast.parse(SOURCE),))


@pytest.mark.parametrize(
    ("message", "is_in_the_code", "is_shown_by_pods"),
    [
        ("node ... is lost", True, True),
        ("... is lost: the kubelet tries ...", True, True),
        ("node ... is not there", True, False),
        ("node ... is found", False, False),
        ("lost ... node", False, False),
        ("A docstring is never shown.", False, False),
    ],
)
def test_a_message_is_compared_with_the_texts_of_the_code(
    message: str, is_in_the_code: bool, is_shown_by_pods: bool
) -> None:
    assert any(can_say(text, message) for text in SMALL.texts) == is_in_the_code
    assert any(can_say(text, message) for text in SMALL.texts_that_pods_show) == is_shown_by_pods


@pytest.mark.parametrize(
    ("line", "is_made"),
    [
        ("node worker-1 is lost: the kubelet tries again", True),
        ("Warning: node worker-1 is lost: the kubelet tries again", True),
        ("node worker-1 is lost: delete the pod and create it again", False),
        ("claim default/a prepared", False),
    ],
)
def test_a_line_of_sample_output_is_compared_with_the_texts_of_the_code(line: str, is_made: bool) -> None:
    assert is_sample_of(SMALL.texts, line) == is_made
