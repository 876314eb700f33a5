import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';

/** 160 bits, as an AWS secret access key has room for. */
const SECRET_BYTES = 20;

/** A new secret: 40 hexadecimal digits, which need no quoting in a shell, a header or a URL. */
export function randomSecret(): string {
  return randomBytes(SECRET_BYTES).toString('hex');
}

/** Compares in a time that does not depend on where the two differ. */
export function isSameSecret(given: string, expected: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(expected));
}
