"""The command line: one thin module a command, imported when the command is used."""
