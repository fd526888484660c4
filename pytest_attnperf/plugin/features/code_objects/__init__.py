"""Items that compile kernels and gate their code objects, instead of timing cases."""
