"""From a booted server to a Node: admit, mint a token, create the Node, approve certificates.

The way of one server through this package:

    request       what the machine says of itself, read strictly
    attestation   what the machine proves of itself, by which kind of proof: tpm judges a TPM's, vouched a DPU's word
    origin        whether it asks from where its server is, successor: whether a kexec of ours brought it
    admit         may it have its join configuration now? (pure)
    service       claim, token (tokens/mint), answer: in an order that survives a crash at any line
    web           the HTTP in front of it
    nodes         the Node before the kubelet registers (node_object, pure), and its effects
    certificates  which its kubelet gets (approve, pure), and their effects
    credentials   which of them count: those of its current boot
"""
