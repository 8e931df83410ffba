"""From a booted server to a Node: admit, mint a token, create the Node, approve certificates.

The way of one server through this package:

    admission/      request      what the machine says of itself, read strictly
                    attestation  what it proves, by which kind of proof: tpm judges a TPM's, vouched a DPU's word
                    origin       whether it asks from where its server is; successor: whether our kexec brought it
                    admit        may it have its join configuration now? (pure)
                    service      claim, token, answer: in an order that survives a crash at any line
                    web          the HTTP in front of it
    tokens/         the bootstrap token, and the removal of stale ones
    nodes/          the Node before the kubelet registers (node_object, pure), and its effects
    certificates/   which the kubelet gets (approve, pure), and their effects
    credentials/    which of them count: those of the current boot

`controller` runs what needs a leader; `challenge_keys` are those by which challenges are sealed.
"""
