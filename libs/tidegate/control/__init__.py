"""The control database: SQLAlchemy models, one repository per aggregate."""
