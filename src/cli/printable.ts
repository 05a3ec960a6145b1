/**
 * Text for a terminal. What events carry was written by others: a key may hold escape sequences that move the cursor,
 * rename the window or turn the reading direction around, so whatever could act on a terminal is shown as `\u001b`.
 */

// Controls, line separators, and invisible formatting such as bidi overrides; the two joiners are part of many scripts.
const acting = /[\p{Cc}\p{Zl}\p{Zp}\p{Cs}]|(?![\u200c\u200d])\p{Cf}/gu

export function printable(text: string): string {
  return text.replace(acting, (character) => {
    const units = Array.from({ length: character.length }, (_, at) => character.charCodeAt(at))
    return units.map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`).join('')
  })
}

/** JSON text on one line, its meaning unchanged: JSON has a bare line end only between its tokens. */
export const oneLine = (json: string): string => json.replace(/[\r\n]/g, ' ')

/** JSON text on one line that cannot act on a terminal, and is still the same JSON. */
export const printableJson = (json: string): string => printable(json.replace(/[\r\n\t]/g, ' '))

const plain = /^[\x20-\x7e]*$/
const noColumn = /^[\p{Mn}\p{Me}\u200c\u200d]$/u
const twoColumns =
  /^[\p{Emoji_Presentation}\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]$/u

/** How many columns of a terminal a printable text takes. */
export function columnsOf(text: string): number {
  if (plain.test(text)) return text.length
  let columns = 0
  for (const character of text) columns += columnsOfCharacter(character)
  return columns
}

function columnsOfCharacter(character: string): number {
  if (noColumn.test(character)) return 0
  return twoColumns.test(character) ? 2 : 1
}

/** At most this many columns; what is left out shows as `…`. */
export function shorten(text: string, columns: number): string {
  if (text.length <= columns && plain.test(text)) return text
  let taken = ''
  let used = 0
  let lengthBeforeLast = 0
  for (const character of text) {
    used += columnsOfCharacter(character)
    if (used > columns) return columns < 1 ? '' : `${taken.slice(0, lengthBeforeLast)}…`
    if (used < columns) lengthBeforeLast = taken.length + character.length
    taken += character
  }
  return text
}

export function padded(text: string, columns: number, side: 'left' | 'right' = 'left'): string {
  const space = ' '.repeat(Math.max(0, columns - columnsOf(text)))
  return side === 'left' ? text + space : space + text
}
