"""From a booted server to a Node: admit, mint a token, create the Node, approve certificates.

The way of one server through this package:

    request       what the machine says of itself, read strictly
    attestation   what the machine proves of itself, by which kind of proof: tpm judges a TPM's, vouched a DPU's word
    admit         may it have its join configuration now? (pure)
    mint          the bootstrap token
    service       claim, token, answer: in an order that survives a crash at any line
    web           the HTTP in front of it
    node_object   the Node before the kubelet registers (pure), node_controller its effects
    csr           which certificates it gets (pure), csr_controller their effects
"""
