"""Controllers on a running model: answers, the server, its chat protocol."""
