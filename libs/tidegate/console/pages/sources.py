"""What the pages read from."""

from __future__ import annotations

from tidegate.console.pages.findings import findings, incidents
from tidegate.console.pages.known_logs import KnownLogs
from tidegate.console.pages.latest import Latest
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.operators.registry import kind_of
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.findings import Finding
from tidegate.runtime.doctor.instances import Incident
from tidegate.runtime.doctor.status import EndsOf, TopicEnds, from_broker

_NO_ANSWER = TopicEnds(error="the broker has not answered yet: lag is not known")


class Sources:
    """Where the pages get what they show: the logs at each request, all that may be slow from the background.

    `logs`: the logs, of which earlier requests have read what stays.
    """

    def __init__(self, application: Application) -> None:
        self.application = application
        self.logs = KnownLogs(application)
        self._ends = Latest[dict[str, TopicEnds]](self._ask_broker, {})
        self._findings = Latest[list[Finding]](lambda: findings(self.logs), [])
        self._incidents = Latest[list[Incident]](lambda: incidents(application), [])

    def config(self, name: str) -> OperatorConfig:
        """Return the configuration of an operator. Raise UserError if the application has none of that name."""
        if name not in self.application.operators:
            known = ", ".join(self.application.operators) or "none"
            raise UserError("there is no such operator", value=name[:100], remedy=f"the file has: {known}")
        return self.application.operators[name]

    def rules(self, name: str, step: str | None) -> OperatorRules:
        """Return the rules of an operator, or of its step. Raise UserError if it has no such step."""
        config = self.config(name)
        if step is None:
            return config.shown()
        steps = config.operators
        if step not in steps:
            raise UserError("there is no such step", value=step[:100], remedy=f"steps: {', '.join(steps) or 'none'}")
        return config.shown(step)

    def ends_of(self) -> EndsOf:
        """Return a function that says what is known of a topic without asking the broker."""
        known = self._ends.get()
        return lambda topic: known.get(topic, _NO_ANSWER)

    def findings(self) -> list[Finding]:
        """Return the latest findings."""
        return self._findings.get()

    def incidents(self) -> list[Incident]:
        """Return the latest answer to how drivers have ended without a request, the newest first."""
        return self._incidents.get()

    def _ask_broker(self) -> dict[str, TopicEnds]:
        ends_of = from_broker(self.application)
        topics = {topic for config in self.application.operators.values() for topic in config.inputs}
        return {topic: ends_of(topic) for topic in topics}


def content_of(config: OperatorConfig) -> list[tuple[str | None, str]]:
    """Return what an operator holds in words, by step; the step is None for an operator that is a single step."""
    steps = config.operators
    return [(name, kind_of(rules.kind).holds) for name, rules in steps.items()] or [(None, kind_of(config.kind).holds)]
