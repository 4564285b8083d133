from pathlib import Path

import pytest

from dracpu_agent.cli.options import parser, run_options


def options(*arguments, **environment):
    return run_options(parser(environment).parse_args(["run", *arguments]))


def test_environment_variables_set_options_and_the_command_line_takes_precedence():
    environment = {"DRACPU_NODE_NAME": "from-env", "DRACPU_STATE_DIR": "/env", "DRACPU_HTTP_ADDRESS": ":9"}
    read = options("--state-dir", "/line", **environment)
    assert (read.node_name, read.state_dir, read.http_address) == ("from-env", Path("/line"), ":9")


def test_the_node_name_defaults_to_the_variable_of_the_downward_api():
    assert options(NODE_NAME="vm1").node_name == "vm1"


def test_defaults_are_the_standard_paths_of_a_node():
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
def test_unknown_commands_options_and_values_are_refused_with_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as refusal:
        parser({}).parse_args(arguments)
    assert refusal.value.code == 2
    assert "usage: dracpu-agent" in capsys.readouterr().err


def test_an_invalid_value_in_the_environment_is_refused_as_on_the_command_line(capsys):
    with pytest.raises(SystemExit):
        options(DRACPU_LOG_LEVEL="loud")
    assert "loud" in capsys.readouterr().err
