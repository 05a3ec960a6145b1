/** docs/cli.md and the program say the same. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { exitCodes } from '../src/cli/exit.ts'
import { createProgram } from '../src/cli/program.ts'

const text = readFileSync(join(import.meta.dirname, '../docs/cli.md'), 'utf8')
const program = createProgram(() => async () => {}, process)

/** Every command, and after it those below it: `streams`, `streams show`. */
const commands = program.commands.flatMap((command) => [
  [command.name(), command] as const,
  ...command.commands.map((below) => [`${command.name()} ${below.name()}`, below] as const),
])

/** Each command's section, by its name. */
const sections = new Map(
  text
    .split(/^###? /m)
    .map((section) => [/^`busbar (\w+(?: \w+)?)`/.exec(section)?.[1], section] as const)
    .filter(([name]) => name !== undefined),
)

describe('docs/cli.md', () => {
  test('has every command and no other, in the order of the help', () => {
    expect([...sections.keys()]).toEqual(commands.map(([name]) => name))
  })

  test.each(commands)('%s', (name, command) => {
    const section = sections.get(name)!
    expect(section).toMatch(new RegExp(`\`\`\`sh\n(.* \\| )?busbar ${name}`))
    expect(section).toMatch(/Exit codes: 0/)
    const listed = [...section.matchAll(/^\| `(--[a-z-]+)` \|/gm)].map((found) => found[1])
    expect(listed).toEqual(command.options.map((option) => option.long))
    const given = command.registeredArguments.map((argument) => {
      const shown = argument.name() + (argument.variadic ? '...' : '')
      return argument.required ? `<${shown}>` : `[${shown}]`
    })
    if (given.length > 0 && name !== 'get') expect(section).toContain(`| \`${given.join(' ')}\` |`)
  })

  test('every option of an example exists', () => {
    const known = new Set(
      [...program.options, ...commands.flatMap(([, { options }]) => options)].map(({ long }) => long),
    )
    const examples = [...text.matchAll(/```sh\n([\s\S]*?)```/g)].map((found) => found[1]).join('')
    const used = [...examples.matchAll(/ (--[a-z-]+)/g)].map((found) => found[1]!)
    expect(used.filter((option) => !known.has(option))).toEqual([])
    expect(used.length).toBeGreaterThan(10)
  })

  test('has the exit codes, and so has the help', () => {
    const listed = [...text.matchAll(/^\| (\d) \| `(\w+)` \|/gm)].map(([, code, name]) => [name, Number(code)])
    expect(Object.fromEntries(listed)).toEqual(exitCodes)
    const parts: string[] = []
    program.configureOutput({ writeOut: (part) => parts.push(part) })
    program.outputHelp()
    const help = parts.join('')
    const codes = [...help.slice(help.indexOf('Exit codes:')).matchAll(/^ {2}(\d) {2}\w/gm)].map((found) =>
      Number(found[1]),
    )
    expect(codes).toEqual(Object.values(exitCodes))
  })
})
