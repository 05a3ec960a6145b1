/** JSON texts as anyone may write them: escapes, big numbers, names in any order, space between tokens. */
import fc from 'fast-check'

const space = fc.constantFrom('', '', '', ' ', '\n', '\r\n\t', '   ')
const anyText = fc.string({ unit: 'binary', maxLength: 20 })
const string = fc.oneof(
  anyText.map((text) => JSON.stringify(text)),
  // The same text, every unit of it escaped.
  anyText.map(
    (text) =>
      `"${text
        .split('')
        .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
        .join('')}"`,
  ),
  fc.constantFrom('"\\ud800"', '"\\/"', '"\\u0000"', '"\\"}\\n"', '"\u2028\u2029\ufeff"', '",\\"data\\":"'),
)
const number = fc.oneof(
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((each) => JSON.stringify(each)),
  fc.bigInt().map(String),
  fc.constantFrom(
    '-0',
    '0.10',
    '1E5',
    '1e+05',
    '12345678901234567890.123456789',
    '9007199254740993',
    '1e-999',
    '-0.0e0',
  ),
)
export const { json: jsonText } = fc.letrec<{ json: string }>((tie) => {
  const spaced = fc.tuple(space, tie('json'), space).map((parts) => parts.join(''))
  return {
    json: fc.oneof(
      { maxDepth: 5, withCrossShrink: true },
      fc.oneof(string, number, fc.constantFrom('true', 'false', 'null')),
      fc.array(spaced, { maxLength: 4 }).map((items) => `[${items.join(',')}]`),
      // Names in any order, also twice.
      fc
        .array(fc.tuple(string, spaced), { maxLength: 4 })
        .map((items) => `{${items.map(([k, v]) => `${k}:${v}`).join(',')}}`),
    ),
  }
})

/** With space around it too. */
export const spacedJsonText = fc.tuple(space, jsonText, space).map((parts) => parts.join(''))
