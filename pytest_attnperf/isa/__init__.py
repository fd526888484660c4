"""Executes the machine code of compiled AMD kernels on any machine: an interpreter in numpy, all lanes at once.

numpy is the user's, as torch is: nothing outside this package imports it.
"""
