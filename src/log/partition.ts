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

/** CRC-32 (IEEE) of the text's UTF-8 bytes. */
export function crc32(text: string): number {
  let crc = 0xffffffff
  for (let i = 0; i < text.length; i += 1) {
    const code = text.charCodeAt(i)
    if (code > 127) return crc32Bytes(Buffer.from(text, 'utf8'))
    crc = crcTable[(crc ^ code) & 0xff]! ^ (crc >>> 8)
  }
  return (crc ^ 0xffffffff) >>> 0
}

function crc32Bytes(bytes: Uint8Array): number {
  let crc = 0xffffffff
  for (const byte of bytes) crc = crcTable[(crc ^ byte) & 0xff]! ^ (crc >>> 8)
  return (crc ^ 0xffffffff) >>> 0
}

/** murmur3's finaliser: CRC-32 alone leaves similar keys in neighbouring partitions. */
function fmix32(hash: number): number {
  let h = hash
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}

/** `object` is `"<tenant>/<key>"`. */
export function partitionOf(object: string, partitions: number): number {
  return fmix32(crc32(object)) % partitions
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
