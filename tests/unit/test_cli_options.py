from pathlib import Path

import pytest

from dracpu_agent.cli.options import parser, run_options


def options(*arguments, **environment):
    return run_options(parser(environment).parse_args(["run", *arguments]))


def test_every_option_is_also_an_environment_variable_and_the_command_line_wins():
    environment = {"DRACPU_NODE_NAME": "from-env", "DRACPU_STATE_DIR": "/env", "DRACPU_HTTP_ADDRESS": ":9"}
    read = options("--state-dir", "/line", **environment)
    assert (read.node_name, read.state_dir, read.http_address) == ("from-env", Path("/line"), ":9")


def test_the_node_name_comes_from_the_downward_api_where_nothing_else_says_it():
    assert options(NODE_NAME="vm1").node_name == "vm1"


def test_defaults_are_the_paths_of_an_ordinary_node():
    read = options(NODE_NAME="vm1")
    assert (str(read.kubelet_root), str(read.cdi_dir), str(read.nri_socket), read.kubeconfig) == (
        "/var/lib/kubelet",
        "/var/run/cdi",
        "/var/run/nri/nri.sock",
        None,
    )
    assert read.status_interval == 5.0


@pytest.mark.parametrize(
    "arguments",
    [["run", "--log-level", "loud"], ["run", "--status-interval", "0"], ["dance"], [], ["run", "--mode", "grouped"]],
)
def test_what_is_not_known_is_refused_with_usage(arguments, capsys):
    with pytest.raises(SystemExit) as refusal:
        parser({}).parse_args(arguments)
    assert refusal.value.code == 2
    assert "usage: dracpu-agent" in capsys.readouterr().err


def test_a_wrong_choice_in_the_environment_is_refused_like_one_on_the_command_line(capsys):
    with pytest.raises(SystemExit):
        options(DRACPU_LOG_LEVEL="loud")
    assert "loud" in capsys.readouterr().err
