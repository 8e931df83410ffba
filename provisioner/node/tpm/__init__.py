"""The machine's side of TPM attestation: standard library alone, no tpm2-tools, no tss.

    device        one connection: a command out, an answer in, each with a deadline
    return_codes  what a TPM's refusal means, in words
    commands      the bytes of the commands that are needed, and of their answers
    templates     which keys: the TCG's endorsement keys, and an attestation key
    identity      both keys, loaded; what they are asked
    aead          AES-256-GCM and HKDF
    hand_over     what is measured before a kexec

What is proven with them, and the firmware's event log: `provisioner.node.prover`.

Sources: TCG, TPM 2.0 Library, parts 1 to 3; EK Credential Profile 2.5; PC Client Platform TPM Profile.
"""
