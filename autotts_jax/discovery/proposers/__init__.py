"""Who says what to try next: evolution, constants, language models, an agent."""
