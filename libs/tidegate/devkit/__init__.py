"""What a developer uses and no service needs: an embedded broker, loading and reading topics, charts."""
