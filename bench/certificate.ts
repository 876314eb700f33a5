import { generateKeyPairSync, randomBytes, sign } from 'node:crypto';

/** A key and its self-signed certificate, both in PEM. */
export interface Certificate {
  readonly key: string;
  readonly certificate: string;
}

/** Tags of DER (ITU-T X.690). */
const TAG = { boolean: 0x01, integer: 0x02, bits: 0x03, octets: 0x04, oid: 0x06, utf8: 0x0c, time: 0x17 } as const;
const SEQUENCE = 0x30;
const SET = 0x31;

/** Validity before and after now, in milliseconds. A certificate serves one run only. */
const LIFE_MS = 24 * 60 * 60_000;

/**
 * Makes a self-signed certificate for 127.0.0.1 with an elliptic-curve key (RFC 5280). Encoded here, because not every
 * machine has `openssl`.
 */
export function selfSigned(): Certificate {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const algorithm = der(SEQUENCE, oid('2a8648ce3d040302')); // ecdsa-with-SHA256
  const name = der(SEQUENCE, der(SET, der(SEQUENCE, oid('550403'), der(TAG.utf8, Buffer.from('flowdrop benchmark')))));
  const yes = der(TAG.boolean, Buffer.from([0xff]));
  const extensions = der(
    SEQUENCE,
    der(SEQUENCE, oid('551d13'), yes, der(TAG.octets, der(SEQUENCE, yes))), // basicConstraints: a certificate authority
    der(SEQUENCE, oid('551d11'), der(TAG.octets, der(SEQUENCE, der(0x87, Buffer.from([127, 0, 0, 1]))))), // subjectAltName: the IP address
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

/** One value of DER: tag, length, content. */
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
