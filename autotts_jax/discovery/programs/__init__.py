"""The space of programs: rules, their variation, the interpreter that plays them, their source."""
