'use strict';

/**
 * Command-line arguments: flags, options with values and positionals.
 */

const TRUE_WORDS = ['true', 'yes', 'on', '1'];
const FALSE_WORDS = ['false', 'no', 'off', '0'];

class UsageError extends Error {}

function toNumber(name, text) {
  const value = Number(text);
  if (text.trim() === '' || Number.isNaN(value)) {
    throw new UsageError(`--${name} needs a number, not "${text}"`);
  }
  return value;
}

function toBoolean(name, text) {
  const word = text.toLowerCase();
  if (TRUE_WORDS.includes(word)) {
    return true;
  }
  if (FALSE_WORDS.includes(word)) {
    return false;
  }
  throw new UsageError(`--${name} needs yes or no, not "${text}"`);
}

function convert(option, text) {
  switch (option.type) {
    case 'number':
      return toNumber(option.name, text);
    case 'boolean':
      return toBoolean(option.name, text);
    case 'list':
      return text.split(',').map((part) => part.trim());
    default:
      return text;
  }
}

function findOption(options, flag) {
  for (const option of options) {
    if (flag === `--${option.name}` || flag === `-${option.short}`) {
      return option;
    }
  }
  throw new UsageError(`unknown option ${flag}`);
}

function parse(argv, options) {
  const values = {};
  const positionals = [];
  for (const option of options) {
    if (option.default !== undefined) {
      values[option.name] = option.default;
    }
  }
  let i = 0;
  while (i < argv.length) {
    const word = argv[i];
    i += 1;
    if (word === '--') {
      positionals.push(...argv.slice(i));
      break;
    }
    if (!word.startsWith('-') || word === '-') {
      positionals.push(word);
      continue;
    }
    const [flag, attached] = word.split(/=(.*)/s);
    const option = findOption(options, flag);
    if (option.type === 'boolean' && attached === undefined) {
      values[option.name] = true;
      continue;
    }
    const text = attached !== undefined ? attached : argv[i];
    if (text === undefined) {
      throw new UsageError(`${flag} needs a value`);
    }
    if (attached === undefined) {
      i += 1;
    }
    values[option.name] = convert(option, text);
  }
  return { values, positionals };
}

function usage(program, options) {
  const lines = [`Usage: ${program} [options] [files]`, ''];
  for (const option of options) {
    const short = option.short ? `-${option.short}, ` : '    ';
    lines.push(`  ${short}--${option.name.padEnd(16)} ${option.help || ''}`);
  }
  return lines.join('\n');
}

module.exports = { UsageError, parse, usage };
