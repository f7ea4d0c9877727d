"""Tools for developers, which no service needs: an embedded broker, loading and reading topics, charts."""
