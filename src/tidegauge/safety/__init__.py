"""Never hurt the agent: what runs under these guards raises nothing of ours into user code.

``guard`` keeps our exceptions from the agent, ``critical`` keeps interrupts out of moments that
must not be torn, ``private_files`` opens files that only their owner reads.
"""
