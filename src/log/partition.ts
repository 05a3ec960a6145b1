/**
 * Which partition an object lives in, and which cluster slots a partition lives in.
 *
 * Both are part of the wire contract (docs/wire.md has test vectors): other languages compute the same numbers,
 * so neither may ever change for an existing namespace.
 */

const crcTable = new Uint32Array(256).map((_, byte) => {
  let crc = byte
  for (let bit = 0; bit < 8; bit += 1) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1
  return crc >>> 0
})

const crcStart = -1
const crcStep = (crc: number, byte: number): number => crcTable[(crc ^ byte) & 0xff]! ^ (crc >>> 8)

/** CRC-32 (IEEE). */
export function crc32OfBytes(bytes: Uint8Array): number {
  let crc = crcStart
  for (const byte of bytes) crc = crcStep(crc, byte)
  return ~crc >>> 0
}

/** CRC-32 of the text's UTF-8 bytes. */
export const crc32 = (text: string): number => crc32OfBytes(Buffer.from(text, 'utf8'))

/** murmur3's finaliser: CRC-32 alone leaves similar keys in neighbouring partitions. A signed number: V8 keeps it small. */
function fmix32(hash: number): number {
  let h = hash
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return h ^ (h >>> 16)
}

/** `object` is `"<tenant>/<key>"`. */
export const objectHash = (object: string): number => fmix32(crc32(object))

export const partitionOfHash = (hash: number, partitions: number): number => (hash >>> 0) % partitions

export const partitionOf = (object: string, partitions: number): number =>
  partitionOfHash(objectHash(object), partitions)

/** What the hashes of a tenant's objects have in common. */
export const objectHashStart = (tenant: string): number => ~crc32(`${tenant}/`)

const [space, quote, backslash, tilde] = [0x20, 0x22, 0x5c, 0x7e] as const

/**
 * The object's hash when its key is printable ASCII that JSON writes as it is; undefined for any other key.
 * Publishing walks each key once, here.
 */
export function plainKeyHash(hashStart: number, key: string): number | undefined {
  const { length } = key
  let crc = hashStart
  for (let i = 0; i < length; i += 1) {
    const code = key.charCodeAt(i)
    if (code < space || code > tilde || code === quote || code === backslash) return undefined
    crc = crcStep(crc, code)
  }
  return fmix32(~crc)
}

const clusterSlots = 16_384

/** CRC-16 (XMODEM), as Redis Cluster hashes what stands between braces. */
function slotOf(tag: string): number {
  let crc = 0
  for (let i = 0; i < tag.length; i += 1) {
    crc ^= tag.charCodeAt(i) << 8
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1
  }
  return (crc & 0xffff) % clusterSlots
}

/**
 * The hash tags of all partitions: `"<partition>.<j>"` with the least j that lands in the partition's equal part of
 * the slots, so that a cluster whose nodes own equal ranges carries equal numbers of partitions.
 */
export function partitionTags(partitions: number): string[] {
  const width = clusterSlots / partitions
  return Array.from({ length: partitions }, (_, partition) => {
    for (let j = 0; ; j += 1) {
      const tag = `${partition}.${j}`
      if (Math.floor(slotOf(tag) / width) === partition) return tag
    }
  })
}
