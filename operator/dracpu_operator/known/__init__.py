"""What the operator knows of the cluster: watches and lists feed the records that decisions work on."""
