"""`hourwheel top`: the cluster as it is now, again and again.

look      asks the nodes, each for itself, and the master for wheel and groups
reading   what two looks say together: values, rates, why something is not known; pure
screen    a reading for people
command   options, and the loop
"""
