"""The Alembic environment: runs the steps on the connection and in the transaction of `tidegate.control.revisions`."""

from __future__ import annotations

from alembic import context

from tidegate.control.models import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
