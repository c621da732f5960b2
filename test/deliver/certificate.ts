/** certificate — a key and a certificate for a server on loopback; of no use outside these tests. */

/** Valid for localhost, hook.internal and 127.0.0.1, signed by itself. */
export const CERTIFICATE = `-----BEGIN CERTIFICATE-----
MIIBsDCCAVagAwIBAgIUHhe+IqZYTlv0zodLhnmH9v2gX0AwCgYIKoZIzj0EAwIw
FzEVMBMGA1UEAwwMcmVzcG9vbCB0ZXN0MCAXDTI2MTExNTE2MjE1NloYDzIxMjYx
MDIyMTYyMTU2WjAXMRUwEwYDVQQDDAxyZXNwb29sIHRlc3QwWTATBgcqhkjOPQIB
BggqhkjOPQMBBwNCAAQtATTfPzDF4DFPsEZYMhplJ7D2fxqJ127KsBJXy9/T4AO0
LmxvlSpwicTIO/bXqacH3erMK2HZgNu4xg2d6cSwo34wfDAdBgNVHQ4EFgQUzWkQ
mjvtqPrwPOCrrz5cXTB7j3YwHwYDVR0jBBgwFoAUzWkQmjvtqPrwPOCrrz5cXTB7
j3YwKQYDVR0RBCIwIIIJbG9jYWxob3N0gg1ob29rLmludGVybmFshwR/AAABMA8G
A1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgIc8hFmY+eIqUa5qwNY3a
f7sqMOz/i0rlWlN8XS9L6tgCIQCu3iDVNZHjLu2vCZbifBh+BOuk5mbQ4pER34Jg
+fqt7g==
-----END CERTIFICATE-----`;

/** The key of the certificate. */
export const KEY = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQga33SFs5uatGeS0RE
CBmYInQGUOBws9ilcSuq4oxR4xGhRANCAAQtATTfPzDF4DFPsEZYMhplJ7D2fxqJ
127KsBJXy9/T4AO0LmxvlSpwicTIO/bXqacH3erMK2HZgNu4xg2d6cSw
-----END PRIVATE KEY-----`;
