import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';

/** The checksums that clients of the local run send, by the name used in headers (`x-amz-checksum-<name>`). */
export const CHECKSUM_ALGORITHMS = ['crc32', 'crc64nvme', 'sha1', 'sha256'] as const;
export type ChecksumAlgorithm = (typeof CHECKSUM_ALGORITHMS)[number];

/** FULL_OBJECT: over the whole object. COMPOSITE: over the checksums of its parts. */
export type ChecksumType = 'FULL_OBJECT' | 'COMPOSITE';

export interface Checksum {
  readonly algorithm: ChecksumAlgorithm;
  readonly type: ChecksumType;
  /** Base64. A composite checksum ends in `-<number of parts>`. */
  readonly value: string;
}

export interface Hasher {
  update(chunk: Uint8Array): void;
  digest(): Buffer;
}

class Crc32 implements Hasher {
  #value = 0;

  update(chunk: Uint8Array): void {
    this.#value = crc32(chunk, this.#value);
  }

  digest(): Buffer {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32BE(this.#value);
    return bytes;
  }
}

/**
 * The reflected polynomial of CRC-64/NVME. The table is split into halves because BigInt is about fifty times slower.
 */
const CRC64_POLYNOMIAL = 0x9a6c9329ac4bc9b5n;
const CRC64_TABLE = Array.from({ length: 256 }, (_, byte) => {
  let value = BigInt(byte);
  for (let bit = 0; bit < 8; bit++) value = (value >> 1n) ^ (value & 1n ? CRC64_POLYNOMIAL : 0n);
  return value;
});
const CRC64_TABLE_HIGH = Uint32Array.from(CRC64_TABLE, (value) => Number(value >> 32n));
const CRC64_TABLE_LOW = Uint32Array.from(CRC64_TABLE, (value) => Number(value & 0xffffffffn));

class Crc64Nvme implements Hasher {
  #high = 0xffffffff;
  #low = 0xffffffff;

  update(chunk: Uint8Array): void {
    let high = this.#high;
    let low = this.#low;
    for (const byte of chunk) {
      const index = (low ^ byte) & 0xff;
      low = ((low >>> 8) | (high << 24)) ^ (CRC64_TABLE_LOW[index] as number);
      high = (high >>> 8) ^ (CRC64_TABLE_HIGH[index] as number);
    }
    this.#high = high;
    this.#low = low;
  }

  digest(): Buffer {
    const bytes = Buffer.alloc(8);
    bytes.writeUInt32BE(~this.#high >>> 0, 0);
    bytes.writeUInt32BE(~this.#low >>> 0, 4);
    return bytes;
  }
}

export function createHasher(algorithm: ChecksumAlgorithm): Hasher {
  switch (algorithm) {
    case 'crc32':
      return new Crc32();
    case 'crc64nvme':
      return new Crc64Nvme();
    default:
      return createHash(algorithm);
  }
}
