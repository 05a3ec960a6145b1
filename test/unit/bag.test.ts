/** What comes and goes: each once, in no order. */
import { expect, test } from 'vitest'
import { Bag, type Placed } from '../../src/runtime/bag.ts'

const make = (names: string) => [...names].map((name) => ({ name, place: -1 }))
const namesIn = (bag: Bag<Placed & { name: string }>) =>
  Array.from(bag, ({ name }) => name)
    .sort()
    .join('')

test('what was added is there until it is removed, wherever it is', () => {
  const [a, b, c, d] = make('abcd')
  const bag = new Bag<Placed & { name: string }>()
  for (const one of [a!, b!, c!, d!]) bag.add(one)
  expect([bag.remove(b!), bag.remove(d!)]).toEqual([true, true])
  expect([namesIn(bag), bag.size]).toEqual(['ac', 2])
  bag.add(b!)
  expect([bag.remove(a!), bag.remove(c!), bag.remove(b!), bag.size]).toEqual([true, true, true, 0])
})

test('what is not there is not removed, and nobody else in its place', () => {
  const [a, b] = make('ab')
  const bag = new Bag<Placed & { name: string }>()
  expect(bag.remove(a!)).toBe(false)
  bag.add(a!)
  bag.add(b!)
  bag.remove(a!)
  expect([bag.remove(a!), namesIn(bag)]).toEqual([false, 'b'])
})

test('whoever looks through it may remove and add', () => {
  const bag = new Bag<Placed & { name: string }>()
  for (const one of make('abcd')) bag.add(one)
  const seen: string[] = []
  for (const one of bag) {
    seen.push(one.name)
    bag.remove(one)
    bag.add({ name: one.name.toUpperCase(), place: -1 })
  }
  expect([seen.sort().join(''), namesIn(bag)]).toEqual(['abcd', 'ABCD'])
})
