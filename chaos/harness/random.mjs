/** Chance that can be repeated: the same seed makes the same choices. */

export function createRandom(seed) {
  let state = seed >>> 0
  // mulberry32: 32 bits of state are plenty for a few thousand choices.
  const float = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  const below = (n) => Math.floor(float() * n)
  return {
    float,
    between: (least, most) => least + Math.round(float() * (most - least)),
    pick: (list) => list[below(list.length)],
    shuffled(list) {
      const rest = [...list]
      for (let i = rest.length - 1; i > 0; i -= 1) {
        const other = below(i + 1)
        ;[rest[i], rest[other]] = [rest[other], rest[i]]
      }
      return rest
    },
  }
}
