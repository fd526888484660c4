"""The backward pass of attention in Gluon."""
