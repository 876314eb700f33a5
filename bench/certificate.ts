import { generate } from 'selfsigned';

/** A key and its self-signed certificate, both in PEM. */
export interface Certificate {
  readonly key: string;
  readonly certificate: string;
}

/** Validity before and after now, in milliseconds. A certificate serves one run only. */
const LIFE_MS = 24 * 60 * 60_000;

/**
 * Makes a certificate for 127.0.0.1 that a client can trust as an authority, with an elliptic-curve key.
 * @param until the end of its validity, in milliseconds since the epoch. Default: in a day.
 */
export async function selfSigned(until = Date.now() + LIFE_MS): Promise<Certificate> {
  const { private: key, cert: certificate } = await generate([{ name: 'commonName', value: 'flowdrop benchmark' }], {
    keyType: 'ec',
    algorithm: 'sha256',
    notBeforeDate: new Date(until - 2 * LIFE_MS),
    notAfterDate: new Date(until),
    extensions: [
      { name: 'basicConstraints', cA: true, critical: true },
      { name: 'subjectAltName', altNames: [{ type: 7, ip: '127.0.0.1' }] },
    ],
  });
  return { key, certificate };
}
