import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { forEachElement, forEachMember, kindOfJson, NotJson } from '../../src/json-slices.ts'

const members = (text: string) => {
  const found: [string, string][] = []
  forEachMember(text, (name, raw) => found.push([name, raw]))
  return found
}

const elements = (text: string) => {
  const found: string[] = []
  forEachElement(text, (raw) => found.push(raw))
  return found
}

const parses = (text: string): boolean => {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

const accepts = (text: string): boolean => {
  try {
    if (kindOfJson(text) === 'array') elements(text)
    else members(text)
    return true
  } catch (error) {
    expect(error).toBeInstanceOf(NotJson)
    return false
  }
}

describe('slices of JSON text', () => {
  test('each value is the text that came, without the space around it', () => {
    expect(members(' {"a" : {"b":  [1,2 ] } , "c":"\\ud83d\\ude00 é","d":1.0e+2 ,"":null}\n')).toEqual([
      ['a', '{"b":  [1,2 ] }'],
      ['c', '"\\ud83d\\ude00 é"'],
      ['d', '1.0e+2'],
      ['', 'null'],
    ])
    expect(elements('[ 12345678901234567890 ,{"z":1,"a":2}\t,[ ], "]" ]')).toEqual([
      '12345678901234567890',
      '{"z":1,"a":2}',
      '[ ]',
      '"]"',
    ])
    expect(members('{}')).toEqual([])
    expect(elements(' [ ] ')).toEqual([])
  })

  test('names are decoded, also twice the same and __proto__', () => {
    expect(members('{"\\u0061":1,"a":2,"__proto__":3,"\\"":4}')).toEqual([
      ['a', '1'],
      ['a', '2'],
      ['__proto__', '3'],
      ['"', '4'],
    ])
  })

  const broken = [
    ...['', ' ', '{', '[', '}', ']', '{]', '[}', '[1', '[1,', '[1,]', '[,1]', '[1 2]', '[1]]', '[1]x', '[[1]', '[{]}]'],
    ...[
      '{"a"}',
      '{"a":}',
      '{"a":1,}',
      '{a:1}',
      "{'a':1}",
      '{"a":1 "b":2}',
      '{"a":1}{}',
      '{"a":[1}',
      '{1:2}',
      '{"a"::1}',
    ],
    ...['["a]', '["\\x"]', '["\\u12g4"]', '["\\u123"]', '["\n"]', '["\0"]', '["\t"]', '["\\"]'],
    ...[
      '[01]',
      '[1.]',
      '[.1]',
      '[-]',
      '[+1]',
      '[1e]',
      '[1e+]',
      '[0x1]',
      '[NaN]',
      '[Infinity]',
      '[--1]',
      '[1_0]',
      '[1n]',
    ],
    ...[
      '[tru]',
      '[True]',
      '[nul]',
      '[nullx]',
      '[undefined]',
      '[1]//',
      '/**/[1]',
      '\ufeff[1]',
      '[\u00a01]',
      '[\v1]',
      '[\f1]',
    ],
  ]
  test.each(broken)('%j is refused, as JSON.parse refuses it', (text) => {
    expect(parses(text)).toBe(false)
    expect(accepts(text)).toBe(false)
  })

  test('the place of the first wrong character is named', () => {
    expect(() => members('{"a": 1, b: 2}')).toThrow('unexpected "b" at character 10')
    expect(() => elements('[1, 2')).toThrow('unexpected end at character 6')
  })

  test('any JSON: slices are its values, whatever the space between', () => {
    fc.assert(
      fc.property(
        fc.array(fc.jsonValue({ maxDepth: 4 })),
        fc.constantFrom(undefined, 1, '\t', '\n'),
        (values, space) => {
          expect(elements(JSON.stringify(values, undefined, space)).map((raw) => JSON.parse(raw))).toEqual(
            JSON.parse(JSON.stringify(values)),
          )
          const object = Object.fromEntries(values.map((value, i) => [`k${i}"\\ \u2028`, value]))
          expect(
            members(JSON.stringify(object, undefined, space)).map(([name, raw]) => [name, JSON.parse(raw)]),
          ).toEqual(Object.entries(JSON.parse(JSON.stringify(object))))
        },
      ),
    )
  })

  test('any text that is nearly JSON: accepted exactly when JSON.parse accepts it', () => {
    const near = fc
      .array(fc.constantFrom(...'{}[]:,"\\ \n\t0123456789-+.eEtrufalsn/bu\0é😀'), { maxLength: 12 })
      .map((characters) => characters.join(''))
    const damaged = fc
      .tuple(fc.json({ maxDepth: 3 }), fc.nat(), fc.nat({ max: 2 }), near)
      .map(
        ([text, at, drop, put]) =>
          text.slice(0, at % (text.length + 1)) + put + text.slice((at % (text.length + 1)) + drop),
      )
    fc.assert(
      fc.property(fc.oneof(near, damaged), fc.constantFrom('[#]', '{"a":#}', '#'), (text, around) => {
        const whole = around.replace('#', () => text)
        expect(accepts(whole)).toBe(kindOfJson(whole) !== 'other' && parses(whole))
      }),
      { numRuns: 5_000 },
    )
  })

  test('nesting costs no call stack, and beyond what an event can hold it is refused', () => {
    const nested = (depth: number) => `[${'['.repeat(depth)}${']'.repeat(depth)}]`
    expect(elements(nested(131_000))).toHaveLength(1)
    expect(elements(`[${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}]`)).toHaveLength(1)
    expect(() => elements(nested(500_000))).toThrow('nested over 262144 deep')
    expect(() => elements('['.repeat(1_000_000))).toThrow(NotJson)
  })

  test('a number and a string of millions of characters', () => {
    expect(elements(`[${'1'.repeat(2_000_000)},"${'\\u0000'.repeat(300_000)}"]`)).toHaveLength(2)
  })
})
