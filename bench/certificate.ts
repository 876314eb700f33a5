import { generateKeyPairSync, randomBytes, sign } from 'node:crypto';

/** A key and a certificate that is its own authority, both in PEM. */
export interface Certificate {
  readonly key: string;
  readonly certificate: string;
}

/** Tags of DER (ITU-T X.690). */
const TAG = { boolean: 0x01, integer: 0x02, bits: 0x03, octets: 0x04, oid: 0x06, utf8: 0x0c, time: 0x17 } as const;
const SEQUENCE = 0x30;
const SET = 0x31;

/** Validity, in milliseconds. The certificate is made for one run and never leaves it. */
const LIFE_MS = 24 * 60 * 60_000;

/**
 * A certificate for 127.0.0.1, made here because a laptop need not have `openssl`: an elliptic-curve key, signed by
 * itself (RFC 5280).
 */
export function selfSigned(): Certificate {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const algorithm = der(SEQUENCE, oid('2a8648ce3d040302')); // ecdsa-with-SHA256
  const name = der(SEQUENCE, der(SET, der(SEQUENCE, oid('550403'), der(TAG.utf8, Buffer.from('flowdrop benchmark')))));
  const yes = der(TAG.boolean, Buffer.from([0xff]));
  const extensions = der(
    SEQUENCE,
    der(SEQUENCE, oid('551d13'), yes, der(TAG.octets, der(SEQUENCE, yes))), // basicConstraints: an authority
    der(SEQUENCE, oid('551d11'), der(TAG.octets, der(SEQUENCE, der(0x87, Buffer.from([127, 0, 0, 1]))))), // its address
  );
  const toBeSigned = der(
    SEQUENCE,
    der(0xa0, der(TAG.integer, Buffer.from([2]))), // version 3
    der(TAG.integer, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    algorithm,
    name,
    der(SEQUENCE, time(Date.now() - LIFE_MS), time(Date.now() + LIFE_MS)),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, extensions),
  );
  const signature = der(TAG.bits, Buffer.from([0]), sign('sha256', toBeSigned, privateKey));
  const lines =
    der(SEQUENCE, toBeSigned, algorithm, signature)
      .toString('base64')
      .match(/.{1,64}/g) ?? [];
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
    certificate: ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n'),
  };
}

/** One value: its tag, its length in as many bytes as that takes, and what it holds. */
function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

const oid = (hex: string): Buffer => der(TAG.oid, Buffer.from(hex, 'hex'));

/** YYMMDDHHMMSSZ. */
const time = (ms: number): Buffer =>
  der(TAG.time, Buffer.from(`${new Date(ms).toISOString().replace(/[-:T]/g, '').slice(2, 14)}Z`));
