"""What every server of ours does with a connection, whatever it serves."""
