import { randomBytes, timingSafeEqual } from 'node:crypto';

/** 160 bits, as an AWS secret access key has room for. */
const SECRET_BYTES = 20;

/** A new secret: 40 hexadecimal digits, which need no quoting in a shell, a header or a URL. */
export function randomSecret(): string {
  return randomBytes(SECRET_BYTES).toString('hex');
}

/** Compares in a time that does not depend on where the two differ. Their lengths are no secret. */
export function isSameSecret(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}
