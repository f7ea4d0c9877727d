"""Certificates and logins, from the commands to the service, against a broker that requires them."""

from __future__ import annotations

import json
from itertools import count

import pytest
import yaml
from click.testing import CliRunner

from tidegate.cli.main import main
from tidegate.contracts.errors import UserError
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.topics import topic_names

pytestmark = pytest.mark.broker

LOGINS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LINES = "".join(f'{{"key": "{key}", "value": "{key}", "timestamp": {at}}}\n' for at, key in enumerate("abc"))
_numbers = count()


def options_of(guarded, way):
    return guarded.by_certificate() if way == "certificate" else guarded.by_login(way)


def tidegate(options, *arguments, given=None):
    """What the command prints, with these options of Kafka."""
    others = [f"--option={name}={value}" for name, value in options.items() if name != "bootstrap.servers"]
    done = CliRunner().invoke(main, [*arguments, "--bootstrap", options["bootstrap.servers"], *others], input=given)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("way", ["certificate", *LOGINS])
def test_the_commands_create_write_and_read_a_topic(guarded, way):
    options, name = options_of(guarded, way), f"commands-{next(_numbers)}"
    tidegate(options, "topics", "create", name)
    assert tidegate(options, "produce", name, given=LINES) == "3 records sent, 0 invalid lines\n"
    read = [json.loads(line) for line in tidegate(options, "consume", name).splitlines()]
    assert [record["key"] for record in read] == ["a", "b", "c"]


@pytest.mark.spark
@pytest.mark.parametrize("way", ["certificate", "SCRAM-SHA-512"])
def test_the_service_reads_and_publishes_exactly_once(guarded, spark, way, tmp_path):
    """Every key is held once: a, b and c go out one after the other, the last stays."""
    options, number = options_of(guarded, way), next(_numbers)
    source, output = f"source-{number}", f"output-{number}"
    for name in (source, output):
        tidegate(options, "topics", "create", name)
    tidegate(options, "produce", source, given=LINES)
    file = tmp_path / "secured.yaml"
    operator = {
        "kind": "suppression",
        "input": source,
        "output": output,
        "buffer": {"max_keys": 1, "when_full": "emit"},
    }
    file.write_text(
        yaml.safe_dump(
            {
                "application": f"secured_{number}",
                "lake": "lake",
                "keep_output": "forever",
                "kafka": options,
                "operators": {"updates": operator},
            }
        )
    )
    for _ in range(2):  # the second run finds nothing left to publish
        done = CliRunner().invoke(main, ["run", str(file), "--until-caught-up"])
        assert done.exit_code == 0, done.output
    read = [json.loads(line) for line in tidegate(options, "consume", output).splitlines()]
    assert [record["key"] for record in read] == ["a", "b"]


@pytest.mark.parametrize("mechanism", LOGINS)
@pytest.mark.parametrize("wrong", [{"password": "bob-secret"}, {"user": "nobody"}])
def test_a_failed_login_is_reported_at_once_with_the_remedy_and_without_the_password(guarded, mechanism, wrong):
    told = refusal(guarded.by_login(mechanism, **wrong))
    assert "refuses the login" in told
    assert "sasl.jaas.config" in told
    assert "secret" not in told


def test_an_authority_that_is_not_trusted_is_reported_with_the_remedy(guarded):
    told = refusal(guarded.by_certificate(ssl_truststore_location=str(guarded.strangers_authority)))
    assert "authority that this machine does not trust" in told
    assert "ssl.truststore.location" in told


def test_a_certificate_for_another_host_is_reported_with_the_remedy(guarded):
    other = guarded.broker.secured["SSL"].replace("127.0.0.1", "localhost")
    told = refusal(guarded.by_certificate(bootstrap_servers=other))
    assert "for another host name" in told
    assert "bootstrap.servers" in told


def test_a_client_without_a_certificate_that_the_broker_trusts_is_reported_with_the_remedy(guarded):
    with_a_strangers = guarded.by_certificate(ssl_keystore_location=str(guarded.stranger))
    without = {name: value for name, value in guarded.by_certificate().items() if "keystore" not in name}
    for options in (with_a_strangers, without):
        told = refusal(options)
        assert "does not accept this client's certificate" in told
        assert "ssl.keystore.location" in told


def test_a_running_broker_is_found_with_its_secured_addresses(guarded):
    found = Broker.running(guarded.broker.data)
    assert found is not None
    assert found.secured == guarded.broker.secured


def refusal(options):
    """What the service's client and the commands say; the same, before any time runs out."""
    told = []
    for use in (lambda: KafkaClient(options).probe(), lambda: topic_names(options)):
        with pytest.raises(UserError) as refused:
            use()
        told.append(str(refused.value))
    assert told[0] == told[1]
    return told[0]
